// SPDX-License-Identifier: Apache-2.0
// How jemalloc, which programs are linked with, begins: memory that nobody has used for a second goes back to
// the system, by a thread that wakes for it alone (docs/decisions/allocator.md). $MALLOC_CONF is read after
// this.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0";
}
