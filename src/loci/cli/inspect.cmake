# SPDX-License-Identifier: Apache-2.0
# loci_inspect: what `loci inspect` prints.
loci_library(inspect SOURCES inspect.cc DEPENDS loci_hugging_face loci_compute fmt::fmt)
loci_test(inspect_test SOURCES inspect_test.cc DEPENDS loci_inspect loci_gguf_testing)
loci_library(inspect_state SOURCES inspect_state.cc DEPENDS loci_disk)
loci_test(inspect_state_test SOURCES inspect_state_test.cc DEPENDS loci_inspect_state)
loci_library(inspect_store SOURCES inspect_store.cc DEPENDS loci_store)
if(LOCI_TESTS)
  loci_test(inspect_store_test SOURCES inspect_store_test.cc DEPENDS loci_inspect_store loci_stores_testing)
endif()
