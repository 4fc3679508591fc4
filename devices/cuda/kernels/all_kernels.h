// Every kernel class that kernels.def names.
#pragma once

#include "attention.h"
#include "cached_attention.h"
#include "cross_entropy.h"
#include "elementwise.h"
#include "expand.h"
#include "fp8.h"
#include "group_attention.h"
#include "group_backward.h"
#include "hadamard.h"
#include "magnitude.h"
#include "matrix_attention.h"
#include "matrix_backward.h"
#include "product.h"
#include "rope.h"
#include "rows.h"
#include "update.h"
