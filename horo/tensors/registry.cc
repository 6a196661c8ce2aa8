#include "horo/tensors/registry.h"

#include <stdexcept>
#include <utility>

namespace horo {

void Registry::add_op(CustomOp op) {
  check(op);
  if (op.name.empty() || op.name.size() > kMaxNameBytes) {
    throw std::invalid_argument("register_op '" + op.name.substr(0, kMaxNameBytes) + "': expected a name of 1 to " +
                                std::to_string(kMaxNameBytes) + " bytes, it has " + std::to_string(op.name.size()));
  }
  MutexLock lock(mutex_);
  const auto [found, is_new] = ops_.try_emplace(op.name);
  if (!is_new) throw std::invalid_argument("register_op '" + op.name + "': an operation of that name is registered");
  found->second = std::make_unique<const CustomOp>(std::move(op));
}

const CustomOp& Registry::op(std::string_view name) const {
  MutexLock lock(mutex_);
  if (const auto found = ops_.find(name); found != ops_.end()) return *found->second;
  std::string known;
  for (const auto& [other, op] : ops_) known += (known.empty() ? "'" : ", '") + other + "'";
  throw std::invalid_argument("operation '" + std::string(name.substr(0, kMaxNameBytes)) +
                              "' is not registered in this session (register_op); there " +
                              (known.empty() ? std::string("is none") : "are " + known));
}

}  // namespace horo
