#include "elastic/view_secrets.h"

#include <utility>

namespace horo {

std::shared_ptr<const GuardMessage> ViewSecrets::with_secret(const std::shared_ptr<const GuardMessage>& message) {
  const auto* view = std::get_if<View>(message.get());
  if (view == nullptr) return message;
  if (message == plain_) return secret_view_;
  if (view->epoch != epoch_) secret_ = make_job_key();
  epoch_ = view->epoch;
  View copy = *view;
  copy.secret = secret_;
  plain_ = message;
  secret_view_ = std::make_shared<const GuardMessage>(std::move(copy));
  return secret_view_;
}

}  // namespace horo
