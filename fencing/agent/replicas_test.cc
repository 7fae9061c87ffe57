#include "fencing/agent/replicas.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/test_host.h"
#include "base/testing/wall_clock.h"
#include "fencing/protocol/answer_mark.h"

namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

using Handler = std::function<grpc::Status(grpc::ServerContext*)>;

// A controller replica that says what the test wants it to say.
class FakeReplica final : public v1::Coordinator::Service {
 public:
  explicit FakeReplica(Handler handler) : handler_(std::move(handler)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeReplica() override { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

  grpc::Status Release(grpc::ServerContext* context, const v1::ReleaseRequest*,
                       v1::ReleaseResponse*) override {
    ++calls;
    return handler_(context);
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  std::atomic<int> calls = 0;

 private:
  const Handler handler_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

struct ReplicasRig {
  explicit ReplicasRig(std::vector<std::string> addresses)
      : replicas({.addresses = std::move(addresses),
                  .server_name = "",
                  .credentials = grpc::InsecureChannelCredentials(),
                  .token_file = WriteToken()}) {}
  std::string WriteToken() const {
    std::ofstream(folder / "token") << "token";
    return folder / "token";
  }
  absl::Status Release(absl::Duration within) {
    return replicas.table().CallAny("release", within, [](const auto& replica, absl::Duration limit) {
      return replica.ReleaseGrant(NodeId("n1.0000000000000001"), VolumeId("a-v1"), 1, limit);
    });
  }

  // And is connected to them.
  bool KnowsBoth() {
    return testing::Eventually([&] {
      const auto all = replicas.ListReplicas(absl::Now());
      for (const auto& each : all) each->channel->GetState(/*try_to_connect=*/true);
      return all.size() == 2 && all.back()->channel->GetState(false) == GRPC_CHANNEL_READY;
    });
  }

  const testing::TempDir folder;
  Replicas replicas;
};

// The words that gRPC uses for a call whose time is up.
grpc::Status DeadlineExceeded() { return {grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"}; }

}  // namespace

TEST_CASE("a replica's own DEADLINE_EXCEEDED is final, whatever its words") {
  FakeReplica replica([](grpc::ServerContext* context) {
    AddAnswerMark(context);
    return DeadlineExceeded();
  });
  ReplicasRig rig({replica.address()});
  CHECK(absl::IsDeadlineExceeded(rig.Release(absl::Seconds(20))));
  CHECK(replica.calls == 1);
}

TEST_CASE("a DEADLINE_EXCEEDED that no replica gave is no answer, whatever its words") {
  FakeReplica replica(
      [](grpc::ServerContext*) { return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "time is up"); });
  ReplicasRig rig({replica.address()});
  CHECK(absl::IsUnavailable(rig.Release(absl::Seconds(1))));
  CHECK(replica.calls > 1);
}

TEST_CASE("a node whose clock is set back while nobody answers gives up all the same, and in time") {
  std::optional<testing::WallClockAhead> ahead;
  FakeReplica replica([](grpc::ServerContext*) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "ask another replica");
  });
  ReplicasRig rig({replica.address()});
  REQUIRE(rig.replicas.ListReplicas(absl::Now() + absl::Seconds(20)).size() == 1);
  std::atomic<bool> over = false;
  ahead.emplace(absl::Hours(1));
  testing::AwaitAbseilsClock();
  std::jthread call([&] {
    rig.Release(absl::Seconds(5)).IgnoreError();
    over = true;
  });
  CHECK(testing::Eventually([&] { return replica.calls > 0; }));
  ahead.reset();
  testing::AwaitAbseilsClock();
  CHECK(testing::Eventually([&] { return over.load(); }));
  ahead.emplace(absl::Hours(2));  // so that it ends at last, however it waits
}

TEST_CASE("a replica that is leaving is left for another, also when its answer is marked") {
  std::atomic<int> asked = 0;
  const Handler first_is_leaving = [&](grpc::ServerContext* context) {
    AddAnswerMark(context);
    return asked++ == 0 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "ask another replica")
                        : grpc::Status::OK;
  };
  FakeReplica one(first_is_leaving), other(first_is_leaving);
  ReplicasRig rig({one.address(), other.address()});
  CHECK(rig.Release(absl::Seconds(20)).ok());
  CHECK(one.calls == 1);
  CHECK(other.calls == 1);
}

// Such as one that does not reach an array: it would cost each mount the time that it takes to say so.
TEST_CASE("a replica that could not answer is asked after the others for a while") {
  std::atomic<int> failing = 0, failed = 0;  // the one that is asked first
  const auto handler = [&](int number) -> Handler {
    return [&, number](grpc::ServerContext*) {
      int nobody = 0;
      failing.compare_exchange_strong(nobody, number);
      if (failing != number) return grpc::Status::OK;
      ++failed;
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the array does not answer");
    };
  };
  FakeReplica one(handler(1)), other(handler(2));
  ReplicasRig rig({one.address(), other.address()});
  REQUIRE(rig.KnowsBoth());
  for (int i = 0; i < 10; ++i) CHECK(rig.Release(absl::Seconds(20)).ok());
  CHECK(failed == 1);
}

// As one that does not reach an array and never says so: each call would be lost with it.
TEST_CASE("a replica that took all the time of a call is asked after the one that had none") {
  std::atomic<int> silent = 0;  // the one that is asked first
  const auto handler = [&](int number) -> Handler {
    return [&, number](grpc::ServerContext* context) {
      int nobody = 0;
      silent.compare_exchange_strong(nobody, number);
      while (silent == number && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(10));
      return grpc::Status::OK;
    };
  };
  FakeReplica one(handler(1)), other(handler(2));
  ReplicasRig rig({one.address(), other.address()});
  REQUIRE(rig.KnowsBoth());
  CHECK(absl::IsUnavailable(rig.Release(absl::Seconds(2))));
  REQUIRE(silent != 0);
  CHECK(rig.Release(absl::Seconds(4)).ok());
  CHECK((silent == 1 ? one : other).calls == 1);
}

// A controller that waits for a slow array is no controller that cannot be reached.
TEST_CASE("the error of a call says of each replica that was asked what became of it") {
  FakeReplica silent([](grpc::ServerContext* context) {
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(10));
    return grpc::Status::OK;
  });
  std::string gone;
  {
    FakeReplica soon_gone([](grpc::ServerContext*) { return grpc::Status::OK; });
    gone = soon_gone.address();
  }
  SECTION("one is reached and silent") {
    ReplicasRig rig({silent.address()});
    const std::string error(rig.Release(absl::Seconds(4)).message());
    CHECK_THAT(error, Catch::Contains("release: no controller answered in time") &&
                          Catch::Contains(silent.address() + ": has the call, and was silent for "));
  }
  SECTION("none is reached") {
    ReplicasRig rig({gone});
    const std::string error(rig.Release(absl::Seconds(2)).message());
    CHECK_THAT(error, Catch::Contains("no controller answers at " + gone) &&
                          !Catch::Contains("Deadline Exceeded") && Catch::Contains("this node reaches them"));
  }
}

// The last try is cut short by the caller's time, and says nothing.
TEST_CASE("what a replica said of itself is in the error, and not that its last answer came too late") {
  FakeReplica replica([](grpc::ServerContext*) {
    absl::SleepFor(absl::Milliseconds(150));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the array restarts");
  });
  ReplicasRig rig({replica.address()});
  CHECK_THAT(std::string(rig.Release(absl::Milliseconds(900)).message()),
             Catch::Contains("the array restarts"));
}

TEST_CASE("a replica that names very many others makes a node open no more than 32 connections") {
  FakeReplica replica([](grpc::ServerContext*) { return grpc::Status::OK; });
  ReplicasRig rig({replica.address()});
  REQUIRE(rig.replicas.ListReplicas(absl::Now() + absl::Seconds(20)).size() == 1);
  std::vector<std::string> names = {"a-name:1", "127.0.0.1"};
  for (int port = 1; port <= 100; ++port) names.push_back(absl::StrCat("127.0.0.2:", port));
  rig.replicas.AddNamedReplicas(names);
  CHECK(rig.replicas.ListReplicas(absl::Now()).size() == 32);
  CHECK(rig.Release(absl::Seconds(20)).ok());
}

TEST_CASE("without a token nothing is asked") {
  FakeReplica replica([](grpc::ServerContext*) { return grpc::Status::OK; });
  ReplicasRig rig({replica.address()});
  std::ofstream(rig.folder / "token") << "\n";
  CHECK(absl::IsUnauthenticated(rig.Release(absl::Seconds(20))));
  CHECK(replica.calls == 0);
}

}  // namespace lunkeeper
