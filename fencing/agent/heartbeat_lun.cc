#include "fencing/agent/heartbeat_lun.h"

#include <utility>

#include "base/status_macros.h"
#include "devices/iscsi/block_session.h"

namespace lunkeeper {
namespace {

class IscsiHeartbeatLun final : public HeartbeatLun {
 public:
  explicit IscsiHeartbeatLun(std::unique_ptr<iscsi::BlockSession> session) : session_(std::move(session)) {}
  absl::Status WriteBlocks(uint64_t block, std::span<const char> data) override {
    return session_->WriteBlocks(block, data);
  }
  absl::Status ReadBlocks(uint64_t block, std::span<char> data) override {
    return session_->ReadBlocks(block, data);
  }

 private:
  const std::unique_ptr<iscsi::BlockSession> session_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HeartbeatLun>> LogInByIscsi(const Connection& connection,
                                                           absl::Duration timeout) {
  ASSIGN_OR_RETURN(auto session, iscsi::BlockSession::Login(connection, timeout));
  return std::make_unique<IscsiHeartbeatLun>(std::move(session));
}

}  // namespace lunkeeper
