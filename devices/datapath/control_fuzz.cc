// Bytes as if from a client of the control socket.

#include <sys/socket.h>

#include "absl/time/clock.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/control_socket.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int pair[2];
  if (size == 0 || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return 0;
  const lunkeeper::UniqueFd client(pair[0]), server(pair[1]);
  if (::send(client.get(), data, size, MSG_NOSIGNAL) < 0) return 0;
  lunkeeper::datapath::Request request;
  lunkeeper::ReceiveMessage(server.get(), absl::Now(), &request).IgnoreError();
  return 0;
}
