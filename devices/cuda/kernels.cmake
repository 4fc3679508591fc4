# The kernels as nvcc compiles them, taken into image.cpp, and the headers of NVIDIA's toolkit. The driver's and cuBLASLt's
# libraries are not linked.
set(RONDO_CUDA_ARCHITECTURES "75;80;86;89;90a;100;120" CACHE STRING "Architectures of cards that the kernels are compiled for")
find_program(RONDO_NVCC nvcc PATHS /usr/local/cuda/bin REQUIRED)
get_filename_component(toolkit ${RONDO_NVCC} REALPATH)
get_filename_component(toolkit ${toolkit} DIRECTORY)
get_filename_component(toolkit ${toolkit} DIRECTORY)
find_path(RONDO_CUDA_INCLUDE cublasLt.h HINTS ${toolkit}/include ${toolkit}/targets/x86_64-linux/include REQUIRED)
execute_process(COMMAND ${RONDO_NVCC} --version OUTPUT_VARIABLE nvcc_says COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "release ([0-9]+)\\.([0-9]+)" nvcc_says "${nvcc_says}")
math(EXPR toolkit_version "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")

# Machine code for each architecture, and PTX of the last for cards that come after it.
set(targets)
foreach(architecture IN LISTS RONDO_CUDA_ARCHITECTURES)
  list(APPEND targets -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
list(GET RONDO_CUDA_ARCHITECTURES -1 last)
list(APPEND targets -gencode arch=compute_${last},code=compute_${last})
file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/*)
set(image ${CMAKE_CURRENT_BINARY_DIR}/kernels.fatbin)
add_custom_command(
  OUTPUT ${image}
  COMMAND ${RONDO_NVCC} -std=c++20 -O3 --expt-relaxed-constexpr --threads 0 -Werror all-warnings -Xcompiler -Wall,-Wextra
          -I${CMAKE_SOURCE_DIR}/devices/include -I${CMAKE_SOURCE_DIR}/base/include ${targets} -fatbin -o ${image}
          ${CMAKE_CURRENT_SOURCE_DIR}/kernels/kernels.cu
  DEPENDS ${kernels} ${CMAKE_SOURCE_DIR}/devices/include/rondo/devices/random.h
          ${CMAKE_SOURCE_DIR}/base/include/rondo/base/random.h
  COMMENT "CUDA kernels for ${RONDO_CUDA_ARCHITECTURES}" VERBATIM)
string(REPLACE ";" ", sm_" architectures "sm_${RONDO_CUDA_ARCHITECTURES}")

add_library(rondo_cuda_headers INTERFACE)
target_include_directories(rondo_cuda_headers SYSTEM INTERFACE ${RONDO_CUDA_INCLUDE})
set_source_files_properties(src/image.cpp PROPERTIES OBJECT_DEPENDS ${image} COMPILE_DEFINITIONS
  "RONDO_CUDA_IMAGE=\"${image}\";RONDO_CUDA_TOOLKIT=${toolkit_version};RONDO_CUDA_ARCHITECTURES=\"${architectures}\"")
