"""The interactive views of npu_kit: one view per file."""
