"""From a Relax model to a running one: partition, lower, codegen, run. The only part that needs TVM, beside zoo.

The modules here are the stages as a user meets them. ``model`` reads and prepares Relax code, ``patterns`` says what
the NPU takes, ``codegen`` turns regions into a runtime module, and ``run`` is what that module calls.
"""

BACKEND = "example_npu"  # what TVM knows the kit by: the prefix of its patterns, and of relax.ext
