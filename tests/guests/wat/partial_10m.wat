;; Answers with ten million failed items, all of them the first one.
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
    (func (export "process-batch") (param i32 i32) (result i32)
      (if (i32.eq (memory.grow (i32.const 4000)) (i32.const -1)) (then unreachable))
      ;; partial, its list 24 bytes an entry from the third page on
      (i32.store (i32.const 0) (i32.const 1))
      (i32.store (i32.const 8) (i32.const 4))
      (i32.store (i32.const 16) (i32.const 131072))
      (i32.store (i32.const 20) (i32.const 10000000))
      (i32.const 0))
    ;; Every allocation is the same place: the items are of no interest here.
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536)))

  (core instance $core (instantiate $module))
  (type $process-batch (func (param "items" (list $item)) (result (result u64 (error $batch-error)))))
  (func $process (type $process-batch)
    (canon lift (core func $core "process-batch")
      (memory (core memory $core "memory")) (realloc (core func $core "cabi_realloc"))))
  (instance $processor (export "process-batch" (func $process)))
  (export "batchgate:batch/processor@0.1.0" (instance $processor)))
