// delta_rule.glsl for any card.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "delta_rule.glsl"
