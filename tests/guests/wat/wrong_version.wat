;; Exports the processor of a version that there is not.
(component
  (core module $module
    (func (export "process-batch")))
  (core instance $core (instantiate $module))
  (func $process (canon lift (core func $core "process-batch")))
  (instance $processor (export "process-batch" (func $process)))
  (export "batchgate:batch/processor@9.0.0" (instance $processor)))
