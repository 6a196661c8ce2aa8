// gRPC and the calls of rendezvous.proto. Slow to compile: for source files alone.
#pragma once

// First: abseil defines this macro for thread safety, too, with the same meaning.
#include "horo/base/mutex.h"
#undef GUARDED_BY

// clang-format off
#include <grpcpp/grpcpp.h>

#include "elastic/service/rendezvous.grpc.pb.h"
// clang-format on
