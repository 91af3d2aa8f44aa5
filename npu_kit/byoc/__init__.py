"""From a Relax model to a running one: partition, lower, codegen, run. The only part that needs TVM, beside zoo."""
