#pragma once
// The clients of Ceph by which tgtd has images open, as the gateway's record names them (gateway_record.h),
// and which of them are shut out:
//
//   Register --> in the record --NoteEnded--> ended --ShutOutEnded--> shut out --> not in the record:
//   ForgetClients
//
// A client that ends while its image stays granted, with its tgtd or when the image is opened anew, would
// stay in the record for as long as the grant: after months there would be so many that nobody could read the
// record. It is shut out before it leaves the record, since what it had sent may still be under way. That it
// has ended is known to this process alone. Where that dies in between, the record names the client as ever.
//
// An address is never used twice, so one that has ended is never registered again, though an image shows it
// for some seconds more. Thread-safe. Only FindShutOut and calls that shut out ask Ceph.

#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "devices/array/tgt/blocklist_watch.h"
#include "devices/array/tgt/ceph_pool.h"
#include "devices/array/tgt/gateway_record.h"
#include "devices/array/tgt/image_clients.h"

namespace lunkeeper {

// Takes these from `images`, and with its last client the image.
void EraseClients(const ImageClients& gone, ImageClients& images);

class GatewayClients {
 public:
  // `images`: the record's. The pool outlives it.
  GatewayClients(const CephPool& pool, ImageClients images);
  GatewayClients(const GatewayClients&) = delete;
  GatewayClients& operator=(const GatewayClients&) = delete;

  // Has the cluster refuse these clients from now on, and waits until this client knows. A client that
  // connects later knows from its beginning. `lasts`: for how long it refuses them.
  absl::Status ShutOut(const std::set<ClientAddress>& clients, absl::Duration lasts) ABSL_LOCKS_EXCLUDED(mu_);
  std::set<ClientAddress> shut_out() const ABSL_LOCKS_EXCLUDED(mu_);

  // An image is seen to be open by these clients; none: it soon will be. Those of them that have not ended,
  // which belong into the record. UNAVAILABLE: all have.
  absl::StatusOr<std::set<ClientAddress>> Register(const std::string& image,
                                                   const std::set<ClientAddress>& clients)
      ABSL_LOCKS_EXCLUDED(mu_);
  // FAILED_PRECONDITION: of the clients by which an image is seen to be open, one is not known. It is named,
  // and neither registered nor ever shut out: a kernel has one client for all the images that it has mapped.
  absl::Status CheckOnlyOwn(const std::string& image, const std::set<ClientAddress>& seen) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // The client by which tgtd has opened an image since it was seen to be open by `before`, which are none but
  // own ones. UNAVAILABLE: it is not seen. FAILED_PRECONDITION: several are new.
  absl::StatusOr<ClientAddress> TakeOpened(const std::string& image, const std::set<ClientAddress>& before,
                                           const std::set<ClientAddress>& seen) ABSL_LOCKS_EXCLUDED(mu_);
  // An image was registered, and not forgotten; and those of its clients.
  bool IsRegistered(const std::string& image) const ABSL_LOCKS_EXCLUDED(mu_);
  std::set<ClientAddress> ClientsOf(const std::string& image) const ABSL_LOCKS_EXCLUDED(mu_);
  // These send nothing more: the process is gone, or has closed the image. None: it was only opening the
  // image, by a client that is not known. An image that an agent before this one was opening stays so.
  void NoteEnded(const std::string& image, const std::set<ClientAddress>& clients) ABSL_LOCKS_EXCLUDED(mu_);
  ImageClients ended() const ABSL_LOCKS_EXCLUDED(mu_);  // and not forgotten
  // The images of which a registered client was shut out by somebody else: it has not ended, and Ceph
  // refuses it.
  absl::StatusOr<std::set<std::string>> FindShutOut() ABSL_LOCKS_EXCLUDED(mu_);
  // Of one image, or of all.
  absl::Status ShutOutEnded(const std::string& image) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ShutOutEnded() ABSL_LOCKS_EXCLUDED(mu_);
  // Takes ended ones, as of ended(), from the record's images. One that is being opened anew since then stays
  // there, and leaves `ended`.
  void EraseEnded(ImageClients& ended, ImageClients& images) const ABSL_LOCKS_EXCLUDED(mu_);
  // These, as EraseEnded left them, are not in the record any more.
  void ForgetEnded(ImageClients ended) ABSL_LOCKS_EXCLUDED(mu_);
  // They are not in the record any more.
  void ForgetClients(const ImageClients& gone) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The ones that have neither ended nor been shut out by this gateway.
  std::set<ClientAddress> SelectAlive(const std::string& image, const std::set<ClientAddress>& clients) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // The ones of them that are not known: neither registered, nor left open by an agent before.
  std::set<ClientAddress> SelectUnknown(const std::string& image, const std::set<ClientAddress>& seen) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Leaves only images of which some client has ended.
  void KeepEnded(ImageClients& ended) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void EraseKnown(const ImageClients& gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasAlive() const ABSL_LOCKS_EXCLUDED(mu_);

  const CephPool& pool_;
  BlocklistWatch blocklist_;
  mutable absl::Mutex mu_;
  ImageClients known_ ABSL_GUARDED_BY(mu_);  // in the record, or about to be
  ImageClients ended_ ABSL_GUARDED_BY(mu_);
  std::set<ClientAddress> shut_out_ ABSL_GUARDED_BY(mu_);
  // The images that an agent before this one was opening when it ended (gateway_record.h): one client that
  // nobody knows may be its tgtd's. That lets nobody in, and has the image open for as long as it lives.
  std::set<std::string> left_opening_ ABSL_GUARDED_BY(mu_);
  ImageClients left_open_ ABSL_GUARDED_BY(mu_);  // and these are such clients
};

}  // namespace lunkeeper
