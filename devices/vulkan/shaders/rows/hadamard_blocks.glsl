// What all kernels of kHadamard8 and kHadamard4 share, see rondo/devices/encoding.h.
layout(constant_id = 0) const uint kEncoding = 0;
layout(constant_id = 1) const uint kType = 0;

const uint kHadamard8 = 4;
const uint kBlock = 64;
