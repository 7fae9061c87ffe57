#include "devices/array/tgt/gateway_standbys.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(100);

std::string StandbysName(const std::string& array) { return absl::StrCat("lunkeeper.", array, ".standbys"); }

}  // namespace

// An entry is "COUNT HOST". One that is new since the first look counts, too.
absl::StatusOr<std::set<std::string>> FindStandbys(const CephPool& pool, const std::string& array,
                                                   absl::Duration look,
                                                   const std::function<bool()>& abandoned) {
  const SteadyDeadline deadline(look);
  ASSIGN_OR_RETURN(const auto before, pool.ReadKeys(StandbysName(array)));
  std::set<std::string> hosts;
  while (hosts.empty() && !deadline.IsOver()) {
    if (abandoned && abandoned()) return absl::CancelledError("nobody waits for it now");
    absl::SleepFor(kLookEvery);
    ASSIGN_OR_RETURN(const auto entries, pool.ReadKeys(StandbysName(array)));
    for (const auto& [holder, entry] : entries) {
      const auto known = before.find(holder);
      if (known == before.end() || known->second != entry) hosts.insert(entry.substr(entry.find(' ') + 1));
    }
  }
  return hosts;
}

Standby::Standby(const CephPool& pool, const std::string& array, std::string holder, std::string host)
    : pool_(pool), object_(StandbysName(array)), holder_(std::move(holder)), host_(std::move(host)) {}

Standby::~Standby() {
  if (count_ > 0) BeginWrite("");
  if (write_ != nullptr) pool_.library().rados_aio_release(write_);
}

// One that is not answered for long is not counted, and is no reason to send more.
void Standby::CountUp() {
  if (IsWritten()) BeginWrite(absl::StrCat(++count_, " ", host_));
}

bool Standby::IsWritten() {
  const CephLibrary& ceph = pool_.library();
  if (write_ == nullptr) return true;
  if (ceph.rados_aio_is_complete(write_) == 0) return false;
  const int failed = std::min(ceph.rados_aio_get_return_value(write_), 0);
  ceph.rados_aio_release(std::exchange(write_, nullptr));
  if (failed < 0 && std::exchange(failed_, failed) == 0)
    LogWarn("array", absl::StrCat("nobody can see that this agent stands by: ",
                                  CephError("write object " + object_, failed).message()));
  failed_ = failed;
  return true;
}

// Of one client's writes to one object an OSD does the first one first, so an entry that is removed here does
// not come back.
void Standby::BeginWrite(const std::string& entry) {
  const CephLibrary& ceph = pool_.library();
  if (write_ != nullptr) ceph.rados_aio_release(std::exchange(write_, nullptr));
  const CephLibrary::Handle op = pool_.NewKeyWrite(holder_, entry);
  ceph.rados_aio_create_completion2(nullptr, nullptr, &write_);
  const int begun = ceph.rados_aio_write_op_operate(op, pool_.context(), write_, object_.c_str(), nullptr, 0);
  ceph.rados_release_write_op(op);
  if (begun < 0) ceph.rados_aio_release(std::exchange(write_, nullptr));
}

}  // namespace lunkeeper
