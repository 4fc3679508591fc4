// delta_rule.glsl for subgroups of eight invocations, which hand round what all of them read: for processors that pose
// as cards.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require

#define RONDO_EIGHTS
#include "delta_rule.glsl"
