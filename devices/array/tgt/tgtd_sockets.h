#pragma once
// tgtd's own sockets, each duplicated only while somebody reads it: tens of thousands of them would take
// the agent's descriptors. What is done to a duplicate is done to the socket, so tgtd notices a shutdown as
// it does the other side's.
//
// Thread-safe. PERMISSION_DENIED: this program may not reach into that process; a container needs SYS_PTRACE.

#include <linux/tcp.h>  // has tcpi_bytes_acked, unlike netinet/tcp.h
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"

namespace lunkeeper {

// The numbers of all descriptors of a process, or of as many as it had when it ended.
std::vector<int> ListDescriptors(pid_t process);
// By the process's pidfd. Empty, with errno: it has been closed, or may not be had.
UniqueFd DuplicateDescriptor(const UniqueFd& process, int number);
// Calls `look` with those of these descriptors that are there still.
absl::Status LookAtDescriptors(const UniqueFd& process, const std::vector<int>& numbers,
                               const std::function<void(int number, const UniqueFd& duplicate)>& look);
// Of a socket, for as long as the machine runs: a number may be another socket's soon. 0: it is none.
uint64_t CookieOf(const UniqueFd& socket);
// Its own port, which is a portal's for what tgtd has accepted, and none of them for its connections to Ceph.
// Empty: it is no socket. 0: it has none.
std::optional<uint16_t> OwnPortOf(const UniqueFd& fd);
// Of portals as address:port.
std::set<uint16_t> PortsOf(const std::vector<std::string>& portals);
// Empty: it is no TCP connection.
std::optional<tcp_info> ReadTcpInfo(const UniqueFd& socket);

}  // namespace lunkeeper
