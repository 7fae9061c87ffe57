#pragma once
// An HTTPS server for tests, on loopback, which answers as the test says: rightly, wrongly, slowly or not at
// all. Certificates are made when it starts. Each connection has a thread; the destructor cuts all and joins
// them.

#include <atomic>
#include <boost/beast/http.hpp>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/testing/test_host.h"
#include "fencing/kube/config.h"
#include "fencing/kube/json.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

// One request, and what is said to it. After Cut or Hang the connection is of no more use.
class Exchange {
 public:
  virtual ~Exchange() = default;

  std::string method;
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded
  std::string token, content_type, body;
  int connection = 0;  // counted from 1
  int request = 0;     // on this connection, counted from 1

  virtual void Reply(int status, const std::string& body, const std::string& more_headers = "") = 0;
  void Reply(const Json& json) { Reply(200, ToText(json)); }
  // {"kind": "Status", …}
  void Refuse(int status, const std::string& reason, const std::string& message,
              const std::string& more_headers = "");
  // A reply in chunks: begin it, then chunks, then the end.
  virtual void Begin() = 0;
  virtual void Chunk(const std::string& text) = 0;
  virtual void End() = 0;
  void Event(const std::string& type, const Json& object);
  // Closes the connection at once, whatever was said so far.
  virtual void Cut() = 0;
  // Says nothing for so long. False: the client has gone meanwhile, or the server ends.
  virtual bool Hold(absl::Duration time) = 0;
  // Says nothing until the client has gone or the server ends.
  virtual void Hang() = 0;
};

class ApiFixture {
 public:
  using Handler = std::function<void(Exchange&)>;
  explicit ApiFixture(Handler handler);
  ~ApiFixture();

  KubeConfig Config() const;  // with a token file
  std::unique_ptr<KubeClient> Client() const;
  // A CA that did not sign the server's certificate.
  std::string OtherCa() const { return directory_ / "other-ca.crt"; }
  std::string token_file() const { return directory_ / "token"; }
  void WriteToken(const std::string& token) const;
  int connections() const { return connections_; }
  // Closes every connection there is; new ones are welcome.
  void CutAll();
  // This connection, when it comes, is taken and never spoken on, as by a server that hangs.
  void IgnoreConnection(int number) { ignored_ = number; }

 private:
  struct Session;
  void MakeCertificates() const;
  void Accept();
  void Serve(Session& session);

  const Handler handler_;
  const testing::TempDir directory_;
  struct Tls;
  std::unique_ptr<Tls> tls_;
  std::atomic<int> connections_ = 0, ignored_ = 0;
  absl::Mutex mu_;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::list<Session> sessions_ ABSL_GUARDED_BY(mu_);
  std::thread acceptor_;
};

// Limits for calls of tests.
Limits Soon(absl::Duration time = absl::Seconds(20));

Json Object(const std::string& space, const std::string& name, int version);
Json ListOf(const std::vector<Json>& items, int version, const std::string& next = "");

}  // namespace lunkeeper::kube
