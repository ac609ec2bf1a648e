;; A core module, not a component, whatever it exports.
(module
  (func (export "process-batch")))
