;; Exports the processor by its right name, with a function of another type.
(component
  (core module $module
    (func (export "process-batch") (param i32) (result i32) local.get 0))
  (core instance $core (instantiate $module))
  (func $process (param "items" u32) (result u32) (canon lift (core func $core "process-batch")))
  (instance $processor (export "process-batch" (func $process)))
  (export "batchgate:batch/processor@0.1.0" (instance $processor)))
