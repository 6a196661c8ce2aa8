// gRPC and the calls of rendezvous.proto. Slow to compile: for source files alone.
#pragma once

// First: abseil defines the macros for thread safety again, with the same meaning.
#include "horo/base/mutex.h"

// clang-format off
#include <grpcpp/grpcpp.h>

#include "elastic/service/rendezvous.grpc.pb.h"
// clang-format on
