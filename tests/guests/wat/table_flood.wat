;; Grows a table until it is refused, and then traps.
(component
  (import "batchgate:batch/types@0.1.0" (instance $types
    (type $item (record (field "index" u64) (field "key" string) (field "data" (list u8))))
    (export "item" (type (eq $item)))
    (type $failure (record (field "message" string) (field "retryable" bool)))
    (export "failure" (type $exported-failure (eq $failure)))
    (type $rate-limit (record (field "message" string) (field "retry-after-ms" (option u64))))
    (export "rate-limit" (type $exported-rate-limit (eq $rate-limit)))
    (type $item-failure (record (field "index" u64) (field "message" string) (field "retryable" bool)))
    (export "item-failure" (type $exported-item-failure (eq $item-failure)))
    (type $batch-error (variant
      (case "failed" $exported-failure) (case "fatal" string) (case "too-large" string)
      (case "rate-limited" $exported-rate-limit) (case "partial" (list $exported-item-failure))))
    (export "batch-error" (type (eq $batch-error)))))
  (alias export $types "item" (type $item))
  (alias export $types "batch-error" (type $batch-error))

  (core module $module
    (memory (export "memory") 4)
    (table $table 1 funcref)
    (func (export "process-batch") (param i32 i32) (result i32)
      (loop $more
        (br_if $more
          (i32.ne (table.grow $table (ref.null func) (i32.const 10000)) (i32.const -1))))
      unreachable)
    ;; Every allocation is the same place: the items are of no interest here.
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536)))

  (core instance $core (instantiate $module))
  (type $process-batch (func (param "items" (list $item)) (result (result u64 (error $batch-error)))))
  (func $process (type $process-batch)
    (canon lift (core func $core "process-batch")
      (memory (core memory $core "memory")) (realloc (core func $core "cabi_realloc"))))
  (instance $processor (export "process-batch" (func $process)))
  (export "batchgate:batch/processor@0.1.0" (instance $processor)))
