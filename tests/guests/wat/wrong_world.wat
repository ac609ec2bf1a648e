;; A component that exports something else than the contract asks for.
(component
  (core module $module
    (func (export "run")))
  (core instance $core (instantiate $module))
  (func $run (canon lift (core func $core "run")))
  (instance $tool (export "run" (func $run)))
  (export "example:tool/tool@1.0.0" (instance $tool)))
