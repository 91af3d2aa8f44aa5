"""The JSON graph of a region: its types, the operations, its text form and the rules it keeps."""
