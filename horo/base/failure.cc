#include "horo/base/failure.h"

#include <new>
#include <stdexcept>
#include <utility>

namespace horo {
namespace {

FailurePtr make(Failure::Kind kind, std::string text, int origin = -1, Evidence evidence = Evidence::kTold) {
  return std::make_shared<const Failure>(Failure{kind, std::move(text), origin, evidence});
}

FailurePtr copy_of_current() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const Mismatch& e) {
    return make(Failure::Kind::kMismatch, e.what());
  } catch (const PeerLost& e) {
    return make(Failure::Kind::kPeerLost, e.what(), e.origin(), e.evidence());
  } catch (const ShutDown& e) {
    return make(Failure::Kind::kShutDown, e.what());
  } catch (const std::exception& e) {
    return make(Failure::Kind::kInternal, e.what());
  } catch (...) {
    return make(Failure::Kind::kInternal, "an unknown exception");
  }
}

}  // namespace

void Failure::raise() const {
  switch (kind) {
    case Kind::kMismatch:
      throw Mismatch(text);
    case Kind::kPeerLost:
      throw PeerLost(origin, text, evidence);
    case Kind::kShutDown:
      throw ShutDown(text);
    case Kind::kInvalid:
      throw std::invalid_argument(text);
    case Kind::kInternal:
      break;
  }
  throw std::runtime_error(text);
}

FailurePtr mismatch(std::string text) {
  return make(Failure::Kind::kMismatch, std::move(text));
}

FailurePtr peer_lost(int origin, std::string text, Evidence evidence) {
  return make(Failure::Kind::kPeerLost, std::move(text), origin, evidence);
}

FailurePtr shut_down(std::string text) {
  return make(Failure::Kind::kShutDown, std::move(text));
}

FailurePtr invalid(std::string text) {
  return make(Failure::Kind::kInvalid, std::move(text));
}

FailurePtr out_of_memory() {
  static const FailurePtr failure = make(Failure::Kind::kInternal, "out of memory (std::bad_alloc)");
  return failure;
}

FailurePtr current_failure() {
  try {
    return copy_of_current();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

}  // namespace horo
