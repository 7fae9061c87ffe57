#include "base/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace lunkeeper {

bool IsListening(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // EAGAIN: the listener's queue of connections is full, so there is a listener (unix(7)).
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno == EAGAIN;
}

}  // namespace lunkeeper
