;; Answers with an error text as long as its memory allows.
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
      (local $pages i32)
      ;; All the memory there is: the largest step that is granted, and the next.
      (local.set $pages (i32.const 32768))
      (loop $more
        (if (i32.eq (memory.grow (local.get $pages)) (i32.const -1))
          (then (local.set $pages (i32.shr_u (local.get $pages) (i32.const 1)))))
        (br_if $more (local.get $pages)))
      ;; failed, its message from the third page to the end
      (i32.store (i32.const 0) (i32.const 1))
      (i32.store (i32.const 8) (i32.const 0))
      (i32.store (i32.const 16) (i32.const 131072))
      (i32.store (i32.const 20) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 131072)))
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
