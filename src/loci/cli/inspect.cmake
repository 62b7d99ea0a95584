# loci_inspect: what `loci inspect` prints.
loci_library(inspect SOURCES inspect.cc DEPENDS loci_hugging_face fmt::fmt)
loci_test(inspect_test SOURCES inspect_test.cc DEPENDS loci_inspect)
