// norm.glsl with 64 invocations a row.
#version 460
#extension GL_GOOGLE_include_directive : require

const uint kThreads = 64;
const uint kRows = 1;
#include "norm.glsl"
