// ViewSecrets: the secrets of the epochs that a decision maker begins.
#pragma once

#include <cstdint>
#include <memory>

#include "elastic/messages.h"
#include "horo/base/auth.h"

namespace horo {

class ViewSecrets {
 public:
  // The message itself, unless it is a View: then a copy with the secret of its epoch, the same for all that get the
  // same message.
  std::shared_ptr<const GuardMessage> with_secret(const std::shared_ptr<const GuardMessage>& message);

 private:
  std::uint32_t epoch_ = 0;
  JobKey secret_{};                                          // of the epoch, if that is not 0; never stored
  std::shared_ptr<const GuardMessage> plain_, secret_view_;  // the last View
};

}  // namespace horo
