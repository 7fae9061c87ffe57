// Which client of a store is which LUN's, without a tgtd and a Ceph.
#include "devices/array/tgt/image_clients.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/synchronization/notification.h"
#include "base/testing/test_host.h"
#include "devices/array/tgt/gated_questions.h"
#include "devices/array/tgt/gateway_clients.h"
#include "devices/array/tgt/testing/bare_store.h"

namespace lunkeeper::testing {
namespace {

using Clients = std::set<std::string>;

// For what asks no Ceph.
const CephPool& NoPool() {
  alignas(CephPool) static char unused[sizeof(CephPool)];
  return reinterpret_cast<const CephPool&>(unused);
}

// One image, with the rules of the real store, and what Ceph would show of it.
class ShownStore final : public BareStore {
 public:
  explicit ShownStore(const ImageClients& record) : clients_(NoPool(), record) {}
  std::string VolumePath(const VolumeId&) const override { return kPath; }
  absl::StatusOr<Clients> ListOpeners(const std::string& path) const override {
    if (const absl::Status own = clients_.CheckOnlyOwn(path, shown); !own.ok()) return own;
    return shown;
  }
  absl::Status NoteOpening(const std::string& path) const override {
    return clients_.Register(path, {}).status();
  }
  absl::StatusOr<std::string> RegisterOpened(const std::string& path, const Clients& before,
                                             const std::function<bool()>& is_awaited) const override {
    if (silent) answers.WaitForNotification();
    if (!is_awaited()) return absl::UnavailableError("too late");
    const auto opened = clients_.TakeOpened(path, before, shown);
    if (!opened.ok()) return opened;
    if (const auto named = clients_.Register(path, {*opened}); !named.ok()) return named.status();
    return opened;
  }
  bool IsRegistered(const std::string& path) const override { return clients_.IsRegistered(path); }
  Clients ListClients(const std::string& path) const override { return clients_.ClientsOf(path); }
  void EndClients(const std::string& path, const Clients& ended) const override {
    clients_.NoteEnded(path, ended);
  }
  Clients ended() const { return clients_.ended()[kPath]; }
  bool has_ended() const { return clients_.ended().contains(kPath); }

  inline static const std::string kPath = "lk/v";
  Clients shown;
  std::atomic<bool> silent = false;  // until `answers`
  mutable absl::Notification answers;

 private:
  mutable GatewayClients clients_;
};

// A shared volume of three nodes. One has had it since before this agent, as has a tgtd that was killed, and
// whose client Ceph still shows.
struct SharedImage {
  SharedImage() { grants = AddSharedVolume(*catalogue, {"a.1", "b.1", "c.1"}); }
  absl::Status Begin(const GrantRow& grant) {
    before = std::make_shared<Clients>();
    return questions.BeginOpening(grant, before);
  }
  void Release(const GrantRow& grant) {
    REQUIRE(catalogue->grants().SetReleasing(grant.generation) == absl::OkStatus());
    REQUIRE(catalogue->grants().DeleteGrants({grant.generation}) == absl::OkStatus());
    questions.EndClientsOfReleased(grant);
  }

  const TempDir directory;
  std::unique_ptr<Catalogue> catalogue = Catalogue::Open(directory / "catalogue.db", "a1").value();
  std::vector<GrantRow> grants;
  ShownStore store{ImageClients{{ShownStore::kPath, {"first", "killed"}}}};
  GatedQuestions questions{*catalogue, store};
  std::shared_ptr<Clients> before;
};

}  // namespace

// The second node's client is seen late, and the third one's too.
TEST_CASE_METHOD(SharedImage, "the end of a LUN ends its own client, also where another one was seen late") {
  store.shown = {"first", "killed"};
  REQUIRE(Begin(grants[1]) == absl::OkStatus());
  CHECK(absl::IsUnavailable(questions.RegisterOpened(grants[1], before)));
  store.shown.insert("second");
  CHECK(absl::IsFailedPrecondition(Begin(grants[2])));
  store.shown.erase("second");  // tgtd closes it, and opens it anew
  REQUIRE(Begin(grants[1]) == absl::OkStatus());
  store.shown.insert("second again");
  CHECK(questions.RegisterOpened(grants[1], before) == absl::OkStatus());
  REQUIRE(Begin(grants[2]) == absl::OkStatus());
  store.shown.insert("third");
  CHECK(questions.RegisterOpened(grants[2], before) == absl::OkStatus());
  Release(grants[2]);
  CHECK(store.ended() == Clients{"third"});
  Release(grants[1]);
  CHECK(store.ended() == Clients{"third", "second again"});
}

TEST_CASE_METHOD(SharedImage, "a LUN whose client is not seen is not registered by another one's") {
  store.shown = {"first"};
  REQUIRE(Begin(grants[1]) == absl::OkStatus());
  CHECK(absl::IsUnavailable(questions.RegisterOpened(grants[1], before)));
  CHECK(store.ListClients(store.kPath) == Clients{"first", "killed"});
}

TEST_CASE_METHOD(SharedImage,
                 "a program that opens an image when tgtd does is neither registered nor ended") {
  store.shown = {"first"};
  REQUIRE(Begin(grants[1]) == absl::OkStatus());
  store.shown = {"first", "second", "stranger"};
  CHECK(absl::IsFailedPrecondition(questions.RegisterOpened(grants[1], before)));
  store.shown.erase("second");
  CHECK(absl::IsFailedPrecondition(Begin(grants[1])));
  store.shown.erase("stranger");
  REQUIRE(Begin(grants[1]) == absl::OkStatus());
  store.shown.insert("second again");
  CHECK(questions.RegisterOpened(grants[1], before) == absl::OkStatus());
  CHECK(store.ListClients(store.kPath) == Clients{"first", "killed", "second again"});
}

// tgtd has closed that LUN meanwhile, and somebody looks why the image is slow.
TEST_CASE_METHOD(SharedImage, "who is seen by a registration that was given up is not registered") {
  store.shown = {"first"};
  REQUIRE(Begin(grants[1]) == absl::OkStatus());
  store.silent = true;
  CHECK(absl::IsUnavailable(questions.RegisterOpened(grants[1], before)));
  store.shown.insert("stranger");
  store.silent = false;
  store.answers.Notify();
  REQUIRE(Eventually([&] { return absl::IsFailedPrecondition(Begin(grants[1])); }));
  CHECK(store.ListClients(store.kPath) == Clients{"first", "killed"});
  CHECK(store.ended().empty());
}

// In the record it would pass for one that a gateway before was opening, and so would anybody's client.
TEST_CASE_METHOD(SharedImage, "an image that tgtd ended on when it just opened it is being opened no more") {
  const ShownStore unused{ImageClients{}};
  GatedQuestions opening{*catalogue, unused};
  EndClientsOfTgtd(*catalogue, unused, grants[0].tgtd);
  CHECK_FALSE(unused.has_ended());
  REQUIRE(opening.BeginOpening(grants[0], std::make_shared<Clients>()) == absl::OkStatus());
  EndClientsOfTgtd(*catalogue, unused, grants[0].tgtd + 1);
  CHECK_FALSE(unused.has_ended());
  EndClientsOfTgtd(*catalogue, unused, grants[0].tgtd);
  CHECK(unused.has_ended());
  REQUIRE(opening.BeginOpening(grants[0], std::make_shared<Clients>()) == absl::OkStatus());
  CHECK_FALSE(unused.has_ended());  // by the next tgtd
}

TEST_CASE_METHOD(SharedImage, "an image that a gateway before was opening when it ended stays so") {
  const ShownStore left{ImageClients{{ShownStore::kPath, {}}}};
  EndClientsOfTgtd(*catalogue, left, grants[0].tgtd);
  CHECK_FALSE(left.has_ended());
}

// The next agent takes one client that nobody knows for the tgtd of before. This one is somebody else's, and
// was refused all the time.
TEST_CASE_METHOD(SharedImage, "an image that could not be opened is not named as being opened") {
  Release(grants[1]);
  Release(grants[2]);
  ShownStore alone{ImageClients{}};
  GatedQuestions opening{*catalogue, alone};
  const auto saw = std::make_shared<Clients>();
  REQUIRE(opening.BeginOpening(grants[0], saw) == absl::OkStatus());
  alone.shown = {"own", "stranger"};
  REQUIRE(absl::IsFailedPrecondition(opening.RegisterOpened(grants[0], saw)));
  alone.shown = {"stranger"};  // the tick has closed the LUN
  REQUIRE(absl::IsFailedPrecondition(opening.BeginOpening(grants[0], saw)));
  CHECK(alone.has_ended());
}

// Else a growth would close that LUN, and could not open it again until the store has answered.
TEST_CASE_METHOD(SharedImage,
                 "no LUN is closed while a registration of its image that was given up goes on") {
  store.shown = {"first"};
  REQUIRE(questions.CheckOnlyOwn(grants[0]) == absl::OkStatus());
  REQUIRE(Begin(grants[1]) == absl::OkStatus());
  store.silent = true;
  CHECK(absl::IsUnavailable(questions.RegisterOpened(grants[1], before)));
  CHECK(absl::IsUnavailable(questions.CheckOnlyOwn(grants[0])));
  store.silent = false;
  store.answers.Notify();
  CHECK(Eventually([&] { return questions.CheckOnlyOwn(grants[0]).ok(); }));
}

TEST_CASE("gateway clients: who is seen in the place of one that was shut out is somebody else") {
  const GatewayClients clients(NoPool(), {{"lk/v", {"own"}}});
  CHECK(absl::IsFailedPrecondition(clients.CheckOnlyOwn("lk/v", {"stranger"})));
  CHECK(clients.CheckOnlyOwn("lk/v", {"own"}) == absl::OkStatus());
}

TEST_CASE("gateway clients: a killed tgtd's client, which is still seen, is nobody else's") {
  GatewayClients clients(NoPool(), {{"lk/v", {"killed"}}});
  clients.NoteEnded("lk/v", {"killed"});
  REQUIRE(clients.CheckOnlyOwn("lk/v", {"killed"}) == absl::OkStatus());
  CHECK(*clients.TakeOpened("lk/v", {"killed"}, {"killed", "new"}) == "new");
}

// What the record of the gateway before says of an image: no client, or none yet.
TEST_CASE("gateway clients: only of an image that was being opened, a client may be left that nobody knows") {
  GatewayClients clients(NoPool(), {{"lk/opening", {}}, {"lk/served", {"own"}}});
  CHECK(absl::IsFailedPrecondition(clients.CheckOnlyOwn("lk/idle", {"stranger"})));
  CHECK(absl::IsFailedPrecondition(clients.CheckOnlyOwn("lk/served", {"own", "stranger"})));
  CHECK(absl::IsFailedPrecondition(clients.CheckOnlyOwn("lk/opening", {"left", "stranger"})));
  REQUIRE(clients.CheckOnlyOwn("lk/opening", {"left"}) == absl::OkStatus());
  CHECK(*clients.TakeOpened("lk/opening", {"left"}, {"left", "new"}) == "new");
  REQUIRE(clients.Register("lk/opening", {"new"}).ok());
  // From then on it is known who that is.
  CHECK(clients.CheckOnlyOwn("lk/opening", {"left", "new"}) == absl::OkStatus());
  CHECK(absl::IsFailedPrecondition(clients.CheckOnlyOwn("lk/opening", {"new", "stranger"})));
  CHECK(clients.ClientsOf("lk/opening") == Clients{"new"});
}

TEST_CASE("gateway clients: an image that was being opened and is closed is like any other") {
  GatewayClients clients(NoPool(), {{"lk/v", {}}});
  clients.ForgetClients({{"lk/v", {}}});
  CHECK(absl::IsFailedPrecondition(clients.CheckOnlyOwn("lk/v", {"stranger"})));
}

TEST_CASE("gateway clients: an image that is opened anew stays in the record, which others leave") {
  GatewayClients clients(NoPool(), {});
  for (const std::string image : {"lk/anew", "lk/ended"}) {
    REQUIRE(clients.Register(image, {}).ok());
    clients.NoteEnded(image, {});
  }
  ImageClients ended = clients.ended(), record = {{"lk/anew", {}}, {"lk/ended", {}}};
  REQUIRE(clients.Register("lk/anew", {}).ok());
  clients.EraseEnded(ended, record);
  clients.ForgetClients(ended);
  CHECK(record == ImageClients{{"lk/anew", {}}});
  CHECK(clients.IsRegistered("lk/anew"));
  CHECK_FALSE(clients.IsRegistered("lk/ended"));
}

TEST_CASE("gateway clients: an image that is opened anew while the record is changed stays known") {
  GatewayClients clients(NoPool(), {});
  REQUIRE(clients.Register("lk/v", {}).ok());
  clients.NoteEnded("lk/v", {});
  ImageClients ended = clients.ended(), record = {{"lk/v", {}}};
  clients.EraseEnded(ended, record);
  REQUIRE(clients.Register("lk/v", {}).ok());  // which waits for the change, and then writes it again
  clients.ForgetEnded(ended);
  CHECK(clients.IsRegistered("lk/v"));
}

TEST_CASE("gateway clients: one that was left while an image was opened is passed over in that image alone") {
  GatewayClients clients(NoPool(), {{"lk/opening", {}}, {"lk/other", {"own"}}});
  REQUIRE(clients.CheckOnlyOwn("lk/opening", {"left"}) == absl::OkStatus());
  REQUIRE(*clients.TakeOpened("lk/opening", {"left"}, {"left", "new"}) == "new");
  CHECK(clients.CheckOnlyOwn("lk/opening", {"left"}) == absl::OkStatus());
  CHECK(absl::IsFailedPrecondition(clients.CheckOnlyOwn("lk/other", {"own", "left"})));
}

}  // namespace lunkeeper::testing
