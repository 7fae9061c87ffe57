#pragma once
// A TCP proxy on loopback that can stop passing bytes on while its connections stay open, as a machine that
// hangs does, and close them, as a kernel that lives does. It can change the bytes, as a bad switch does.
// Thread-safe.

#include <atomic>
#include <boost/asio.hpp>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <thread>
#include <utility>

namespace lunkeeper {

class StallingProxy {
 public:
  // Sees, on the proxy's thread, all that is passed on, and may change it; `way` 0 is towards `to`.
  using Change = std::function<void(int way, std::span<char> bytes)>;

  explicit StallingProxy(uint16_t to, Change change = {})
      : to_(boost::asio::ip::address_v4::loopback(), to), change_(std::move(change)) {
    Accept();
    thread_ = std::thread([this] { context_.run(); });
  }
  ~StallingProxy() {
    context_.stop();
    thread_.join();
  }

  uint16_t port() const { return acceptor_.local_endpoint().port(); }
  void Stall(bool stall) {
    boost::asio::post(context_, [this, stall] {
      stalled_ = stall;
      if (!stall) Resume();
    });
  }
  void CloseAll() {
    boost::asio::post(context_, [this] {
      for (auto& line : lines_) {
        boost::system::error_code ignored;
        line->from.close(ignored);
        line->to.close(ignored);
      }
      lines_.clear();
    });
  }

 private:
  using Socket = boost::asio::ip::tcp::socket;
  struct Line {
    explicit Line(boost::asio::io_context& context) : from(context), to(context) {}
    Socket from, to;
    std::array<char, 16384> buffers[2];
    size_t held[2] = {0, 0};  // bytes read while stalled, to be passed on later
  };
  using LinePtr = std::shared_ptr<Line>;

  void Accept() {
    auto line = std::make_shared<Line>(context_);
    acceptor_.async_accept(line->from, [this, line](boost::system::error_code error) {
      if (error) return;
      boost::system::error_code refused;
      line->to.connect(to_, refused);
      if (!refused) {
        lines_.push_back(line);
        Read(line, 0);
        Read(line, 1);
      }
      Accept();
    });
  }
  static Socket& Source(Line& line, int way) { return way == 0 ? line.from : line.to; }
  void Read(const LinePtr& line, int way) {
    Source(*line, way)
        .async_read_some(boost::asio::buffer(line->buffers[way]),
                         [this, line, way](boost::system::error_code error, size_t bytes) {
                           if (error) return End(*line);
                           line->held[way] = bytes;
                           if (!stalled_) Pass(line, way);
                         });
  }
  void Pass(const LinePtr& line, int way) {
    const size_t bytes = std::exchange(line->held[way], 0);
    if (change_) change_(way, {line->buffers[way].data(), bytes});
    boost::asio::async_write(Source(*line, 1 - way), boost::asio::buffer(line->buffers[way].data(), bytes),
                             [this, line, way](boost::system::error_code error, size_t) {
                               if (error) return End(*line);
                               Read(line, way);
                             });
  }
  void Resume() {
    for (auto& line : lines_) {
      for (int way = 0; way < 2; ++way) {
        if (line->held[way] != 0) Pass(line, way);
      }
    }
  }
  // A stalled machine does not tell the other side that one side has gone.
  void End(Line& line) {
    if (stalled_) return;
    boost::system::error_code ignored;
    line.from.close(ignored);
    line.to.close(ignored);
  }

  boost::asio::io_context context_;
  const boost::asio::ip::tcp::endpoint to_;
  const Change change_;
  boost::asio::ip::tcp::acceptor acceptor_{context_, {boost::asio::ip::address_v4::loopback(), 0}};
  std::list<LinePtr> lines_;
  bool stalled_ = false;
  std::thread thread_;
};

}  // namespace lunkeeper
