#include "fencing/agent/kubelet_health.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/http.h"
#include "base/testing/captured_log.h"
#include "base/testing/test_host.h"

namespace lunkeeper {
namespace {

using testing::Eventually;
using testing::TempDir;

// A kubelet's health page that answers as the test wants.
struct HealthPage {
  std::atomic<int> status = 200;
  std::atomic<int> asked = 0;
  std::unique_ptr<HttpServer> server = *StartHttpServer("127.0.0.1:0", {{"/healthz", [this] {
                                                                           ++asked;
                                                                           return HttpReply{status, "ok"};
                                                                         }}});
  std::string address() const { return absl::StrCat("127.0.0.1:", server->port()); }
};

// A runtime that knows no call: that is an answer too.
struct Runtime {
  Runtime() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix://" + path(), grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(&service);
    server = builder.BuildAndStart();
  }
  ~Runtime() {
    if (server != nullptr) server->Shutdown();
  }
  std::string path() const { return folder / "cri.sock"; }

  const TempDir folder;
  grpc::CallbackGenericService service;
  std::unique_ptr<grpc::Server> server;
};

constexpr absl::Duration kOften = absl::Milliseconds(10);

}  // namespace

TEST_CASE("a kubelet whose page fails again and again is not well, and is well at its first answer") {
  HealthPage page;
  const auto health = WatchKubelet({.healthz = page.address(), .runtime_socket = "", .every = kOften});
  REQUIRE(Eventually([&] { return page.asked >= 2; }));
  CHECK(health->IsWell());
  page.status = 500;
  CHECK(Eventually([&] { return !health->IsWell(); }));
  page.status = 200;
  CHECK(Eventually([&] { return health->IsWell(); }));
}

TEST_CASE("one missed answer is nothing") {
  HealthPage page;
  const auto health =
      WatchKubelet({.healthz = page.address(), .runtime_socket = "", .every = kOften, .misses = 1000});
  REQUIRE(Eventually([&] { return page.asked >= 2; }));
  page.status = 500;
  const int before = page.asked;
  REQUIRE(Eventually([&] { return page.asked >= before + 5; }));
  CHECK(health->IsWell());
}

TEST_CASE("a kubelet that has gone is not well; one that never answered is not known, and that is logged") {
  auto page = std::make_unique<HealthPage>();
  const std::string address = page->address();
  const auto known = WatchKubelet({.healthz = address, .runtime_socket = "", .every = kOften});
  REQUIRE(Eventually([&] { return page->asked >= 2; }));
  page.reset();
  REQUIRE(Eventually([&] { return !known->IsWell(); }));
  const TempDir folder;
  const testing::CapturedLog log(folder / "log");
  const auto unknown = WatchKubelet({.healthz = address, .runtime_socket = "", .every = kOften});
  CHECK(Eventually([&] { return absl::StrContains(log.Text(), "the kubelet has never answered"); }));
  CHECK(unknown->IsWell());
}

TEST_CASE("a container runtime that stops answering is noticed") {
  auto runtime = std::make_unique<Runtime>();
  const auto health = WatchKubelet({.healthz = "", .runtime_socket = runtime->path(), .every = kOften});
  const absl::Time began = absl::Now();
  REQUIRE(Eventually([&] { return absl::Now() - began > 50 * kOften; }));
  CHECK(health->IsWell());
  runtime.reset();
  CHECK(Eventually([&] { return !health->IsWell(); }));
}

}  // namespace lunkeeper
