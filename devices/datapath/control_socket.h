#pragma once
// Whole protobuf messages, with file descriptors, over unix sockets of type SOCK_SEQPACKET: one message, one
// packet. Thread-safe as the socket is. Failures: UNAVAILABLE (nobody there, or gone), DEADLINE_EXCEEDED,
// INVALID_ARGUMENT (what came is no such message), RESOURCE_EXHAUSTED (larger than kMaxMessage,
// or no room for the descriptors).

#include <google/protobuf/message_lite.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace lunkeeper {

constexpr size_t kMaxMessage = size_t{64} << 10;

// Listens at `path` with mode 0600, replacing a socket there on which nobody listens.
// ALREADY_EXISTS: somebody does.
absl::StatusOr<UniqueFd> ListenAt(const std::string& path);
// `flags`: of socket(2).
absl::StatusOr<UniqueFd> ConnectTo(const std::string& path, int flags = 0);
// The other end is a process of root's.
bool PeerIsRoot(int socket);

absl::Status SendMessage(int socket, const google::protobuf::MessageLite& message,
                         const std::vector<int>& fds = {});
// Fills `message`, and `fds` with what descriptors came along (at most 4). `flags`: of recvmsg(2).
absl::Status ReceiveMessage(int socket, absl::Time deadline, google::protobuf::MessageLite* message,
                            std::vector<UniqueFd>* fds = nullptr, int flags = 0);

}  // namespace lunkeeper
