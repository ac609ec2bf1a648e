// Posts each batch to `api_url`; see exports/export_batchgate_batch_processor.
package main

import _ "uploader/exports/wit_exports"

// A component of this kind has no main of its own: the host calls its exports.
func main() {}
