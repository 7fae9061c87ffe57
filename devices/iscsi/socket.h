#pragma once
// A TCP connection that never blocks. Thin: the policy is the Lun's. One thread; nothing allocates.

#include <sys/socket.h>
#include <sys/uio.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace lunkeeper::iscsi {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
// `10.0.0.5:3260` or `[fd00::5]:3260`. Numeric only: asking a name server would block the loop.
std::optional<Address> ParseAddress(const std::string& text);
// Whether that is the address of a redirect: `10.0.0.5:3260,1` or `[fd00::5]:3260,1` (RFC 7143, 13.8), of
// which port and group may be missing. Allocates nothing.
bool IsTargetAddress(const Address& address, std::string_view text);

// Begins to connect; the descriptor becomes writable when that is over. Not valid, errno set: it failed at
// once.
UniqueFd OpenSocket(const Address& address);
// 0, or the errno with which the attempt ended.
int ConnectResult(int fd);

// From now on the descriptor is readable when that many bytes are there, or the connection has ended.
void ReadableFrom(int fd, size_t bytes);

// How many bytes can be received at once.
size_t AvailableBytes(int fd);

// Bytes moved, 0 if it would block, or -errno; -EPIPE also for a connection that the peer closed.
ssize_t ReceiveBytes(int fd, iovec* space, int count);
ssize_t SendBytes(int fd, const iovec* pieces, int count);

}  // namespace lunkeeper::iscsi
