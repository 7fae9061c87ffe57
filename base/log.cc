// Records are formatted here, in the calling thread, and handed to spdlog as finished lines: its own patterns
// cannot quote values. The sink has a lock, so lines of two threads never mix.
//
// Standard error may be shared with other processes, a terminal among them, so it is not made non-blocking:
// that would be so for all of them. Instead each write asks first whether there is room, and forbids
// the kernel to wait where that is possible (RWF_NOWAIT): another process may have taken the room meanwhile.
#include "base/log.h"

#include <spdlog/fmt/chrono.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <poll.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>

namespace lunkeeper {
namespace {

// Set once by main(), but a test may set it while threads log.
std::atomic<LogFormat> format{LogFormat::kText};

std::string UtcNow() {
  // Always UTC with milliseconds, so that logs of several machines can be merged by sorting.
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", seconds, (now - seconds).count());
}

// A value of a text record: quoted if a reader or a log collector could not see its end. Bytes that are no
// UTF-8 become U+FFFD, since names from outside must never make logging throw.
std::string QuoteValue(const std::string& value) {
  if (!value.empty() && value.find_first_of(" \"=\n\r\t") == std::string::npos) return value;
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ToTextLine(const char* level, const char* component, const std::string& message,
                       const Fields& fields) {
  std::string line = fmt::format("{} {} {}: {}", UtcNow(), level, component, message);
  for (const Field& field : fields) line += fmt::format(" {}={}", field.key, QuoteValue(field.value));
  return line;
}

std::string ToJsonLine(const char* level, const char* component, const std::string& message,
                       const Fields& fields) {
  // Ordered: a record is read by people, too.
  nlohmann::ordered_json record = {
      {"time", UtcNow()}, {"level", level}, {"component", component}, {"message", message}};
  for (const Field& field : fields) record[field.key] = field.value;
  return record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ToLine(const char* level, const char* component, const std::string& message,
                   const Fields& fields) {
  return format == LogFormat::kJson ? ToJsonLine(level, component, message, fields)
                                    : ToTextLine(level, component, message, fields);
}

std::string LeftOutRecord(size_t count) {
  return ToLine("WARN", "log", "records were left out, since nobody read them",
                {{"records", std::to_string(count)}}) +
         "\n";
}

// How long a record waits for room; and no longer at all while records are being left out.
constexpr int kWaitMs = 100;

// The lock of base_sink is held in sink_it_, so it must end soon: all threads that log wait for it.
class StandardError final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& record) override {
    spdlog::memory_buf_t line;
    formatter_->format(record, line);
    const size_t left_out = left_out_;
    if (!Write({line.data(), line.size()})) {
      ++left_out_;
    } else if (left_out > 0 && Write(LeftOutRecord(left_out))) {
      left_out_ -= left_out;
    }
  }
  void flush_() override {}

  // Whether there was room for all of it. The rest of a line is left out, too.
  bool Write(std::string_view line) {
    if (half_written_ && WriteSome("\n") == 1) half_written_ = false;
    if (half_written_) return false;
    const size_t size = line.size();
    while (!line.empty()) {
      const ssize_t written = WriteSome(line);
      if (written <= 0) break;
      line.remove_prefix(static_cast<size_t>(written));
    }
    half_written_ = !line.empty() && line.size() < size;
    return line.empty();
  }

  // Returns as write(2) does; 0: there is no room.
  ssize_t WriteSome(std::string_view text) const {
    pollfd room = {STDERR_FILENO, POLLOUT, 0};
    if (::poll(&room, 1, left_out_ == 0 ? kWaitMs : 0) == 0) return 0;
    iovec part = {const_cast<char*>(text.data()), text.size()};
    // Of a file, it would refuse also what takes no time to speak of.
    const ssize_t written = is_stream_ ? ::pwritev2(STDERR_FILENO, &part, 1, -1, RWF_NOWAIT) : -1;
    if (written >= 0 || (is_stream_ && errno == EAGAIN)) return written;
    return ::write(STDERR_FILENO, text.data(), text.size());
  }

  static bool IsStream() {
    struct stat status = {};
    return ::fstat(STDERR_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
  }

  const bool is_stream_ = IsStream();  // a pipe or a socket
  size_t left_out_ = 0;
  bool half_written_ = false;  // the last line
};

// Made on first use, so that a static constructor can log. Flushed at each record: a process that is killed
// leaves a complete log.
spdlog::logger& Logger() {
  static const auto logger = [] {
    auto made = std::make_shared<spdlog::logger>("lunkeeper", std::make_shared<StandardError>());
    made->flush_on(spdlog::level::trace);
    made->set_formatter(std::make_unique<spdlog::pattern_formatter>("%v", spdlog::pattern_time_type::utc));
    return made;
  }();
  return *logger;
}

void WriteRecord(spdlog::level::level_enum level, const char* name, const char* component,
                 const std::string& message, const Fields& fields) {
  if (!Logger().should_log(level)) return;
  Logger().log(level, ToLine(name, component, message, fields));
}

}  // namespace

void SetUpLogging(const std::string& level, LogFormat log_format) {
  format = log_format;
  const auto parsed = spdlog::level::from_str(level);
  Logger().set_level(parsed == spdlog::level::off ? spdlog::level::info : parsed);
}

void LogDebug(const char* component, const std::string& message, const Fields& fields) {
  WriteRecord(spdlog::level::debug, "DEBUG", component, message, fields);
}
void LogInfo(const char* component, const std::string& message, const Fields& fields) {
  WriteRecord(spdlog::level::info, "INFO", component, message, fields);
}
void LogWarn(const char* component, const std::string& message, const Fields& fields) {
  WriteRecord(spdlog::level::warn, "WARN", component, message, fields);
}
void LogError(const char* component, const std::string& message, const Fields& fields) {
  WriteRecord(spdlog::level::err, "ERROR", component, message, fields);
}

}  // namespace lunkeeper
