# The CPU backend's own vector kernels: their sources, and the library that holds them. They depend on nothing of the
# backend but kernels.h, so that their tests and benchmarks link them alone.
set(RONDO_CPU_KERNEL_SOURCES
    src/kernels/attention.cpp
    src/kernels/attention_backward.cpp
    src/kernels/cached_attention.cpp
    src/kernels/convert.cpp
    src/kernels/convolution.cpp
    src/kernels/cross_entropy.cpp
    src/kernels/delta.cpp
    src/kernels/delta_backward.cpp
    src/kernels/dropout.cpp
    src/kernels/elementwise.cpp
    src/kernels/expand.cpp
    src/kernels/fp8.cpp
    src/kernels/hadamard.cpp
    src/kernels/magnitude.cpp
    src/kernels/norm.cpp
    src/kernels/rope.cpp
    src/kernels/tile_units.cpp)

add_library(rondo_cpu_kernels STATIC ${RONDO_CPU_KERNEL_SOURCES})
add_library(rondo::cpu_kernels ALIAS rondo_cpu_kernels)
target_include_directories(rondo_cpu_kernels PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/src)
target_link_libraries(rondo_cpu_kernels PUBLIC rondo::devices hwy::hwy PRIVATE rondo_options)
# SSE4 is the least that they are compiled for (it takes the place of scalar code): tests run it beside AVX2, so that two
# vector widths are seen to be right wherever the tests run. AVX2 and AVX-512 are chosen at run time. Products and sums are
# fused only where the code says so: an element must not depend on how the compiler treats the loop it stands in.
target_compile_options(rondo_cpu_kernels PRIVATE -msse4.2 -mpclmul -maes -ffp-contract=off)
# Each of them compiles itself once for every instruction set (hwy/foreach_target.h), so they cannot be compiled together.
set_target_properties(rondo_cpu_kernels PROPERTIES UNITY_BUILD OFF)
