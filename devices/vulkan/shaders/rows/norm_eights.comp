// norm.glsl with eight invocations for four rows, which hand their sums round: for processors that pose as cards.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require

#define RONDO_ONE_SUBGROUP
const uint kThreads = 8;
const uint kRows = 4;
#include "norm.glsl"
