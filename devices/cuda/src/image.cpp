// The kernels as nvcc compiled them, taken into the program as bytes.
#include "context.h"

// RONDO_CUDA_IMAGE: the file; RONDO_CUDA_TOOLKIT: 13000; RONDO_CUDA_ARCHITECTURES: for people. All from CMake.
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    ".global rondo_cuda_image\n"
    ".hidden rondo_cuda_image\n"
    "rondo_cuda_image:\n"
    ".incbin \"" RONDO_CUDA_IMAGE
    "\"\n"
    ".previous\n");

extern "C" const unsigned char rondo_cuda_image[];

namespace rondo::devices::cuda {

KernelImage kernel_image() { return {rondo_cuda_image, RONDO_CUDA_TOOLKIT, RONDO_CUDA_ARCHITECTURES}; }

}  // namespace rondo::devices::cuda
