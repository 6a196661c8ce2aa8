// Files that are damaged or made to do harm: refused with one line, before a byte of them is used.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <random>

#include "horo/base/crc32c.h"
#include "horo/checkpoint/catalog.h"
#include "horo/checkpoint/safetensors.h"
#include "tests/effort.h"
#include "tests/horo/checkpoint/states.h"
#include "tests/horo/worlds.h"

namespace horo::checkpoint {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// TEST_EFFORT=20 does twenty times as much.
int cases(int few) {
  const char* const times = std::getenv("TEST_EFFORT");
  return test::effort(few) * (times == nullptr ? 1 : std::atoi(times));
}

std::vector<StateTensor> flipped_state() {
  return {{"a", "float32", {30, 7}}, {"b", "int64", {}}, {"c", "uint8", {77}}};
}

// Loads all tensors, and says why not.
std::string load_error(const std::string& path, State& into) {
  return thrown_by([&] {
    Checkpoint checkpoint(path);
    load(checkpoint, nullptr, into.tensors(), false);
  });
}

class Damage : public testing::Test {
 protected:
  void SetUp() override { save_alone(folder_ / "step-1", State(flipped_state(), 5)); }

  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder_ / "step-1")) all.push_back(entry.path());
    std::ranges::sort(all);
    return all;
  }
  // Refused by its reader or by its verification, with a line that names the file.
  void expect_refused(const fs::path& file, const std::string& what) {
    State into(flipped_state(), 6);
    const State before(flipped_state(), 6);
    const std::string error = load_error(folder_ / "step-1", into);
    const std::string verified = thrown_by([&] {
      Checkpoint checkpoint(folder_ / "step-1");
      verify(checkpoint);
    });
    EXPECT_THAT(error.empty() ? verified : error, HasSubstr(file.filename().string())) << what;
    EXPECT_THAT(verified, Not("")) << what;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    if (error.empty()) {
      EXPECT_TRUE(into == State(flipped_state(), 5)) << what;  // a byte that no tensor has
    } else {
      EXPECT_TRUE(into == before) << what;
    }
  }

  const TemporaryFolder folder_;
};

TEST_F(Damage, EachTruncationIsRefused) {
  std::mt19937 random(1);
  for (const fs::path& file : files()) {
    const std::string whole = bytes_in_file(file);
    for (int i = 0; i < cases(25); ++i) {
      const std::size_t kept = i == 0 ? 0 : random() % whole.size();
      write_file(file, whole.substr(0, kept));
      expect_refused(file, "cut to " + std::to_string(kept));
    }
    write_file(file, whole);
  }
}

TEST_F(Damage, EachFlippedBitIsRefused) {
  std::mt19937 random(2);
  for (const fs::path& file : files()) {
    const std::string whole = bytes_in_file(file);
    for (int i = 0; i < cases(250); ++i) {
      std::string flipped = whole;
      const std::size_t bit = random() % (8 * whole.size());
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      write_file(file, flipped);
      expect_refused(file, "bit " + std::to_string(bit));
    }
    write_file(file, whole);
  }
}

TEST_F(Damage, AnOlderWholeOneIsListedBehindTheDamagedOne) {
  fs::copy(folder_ / "step-1", folder_ / "step-2");
  fs::resize_file(folder_ / "step-2/index.json", 100);
  const std::vector<Listed> all = list(folder_.path().string());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(all[0].error, HasSubstr("step-2/index.json"));
  EXPECT_EQ(all[1].error, "");
}

TEST_F(Damage, LinksAreNotFollowed) {
  const fs::path part = folder_ / "step-1/part-00000-of-00001.safetensors";
  fs::rename(part, folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", part);
  EXPECT_THAT(thrown_by([&] { Checkpoint(folder_ / "step-1"); }), HasSubstr("is a link"));
  fs::remove(part);
  ASSERT_EQ(::mkfifo(part.c_str(), 0600), 0);
  EXPECT_THAT(thrown_by([&] { Checkpoint(folder_ / "step-1"); }), HasSubstr("is not a regular file"));
}

// The index with its checksum right again.
std::string signed_index(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) ADD_FAILURE() << "the index has no " << from;
  text.replace(at, from.size(), to);
  text.resize(text.rfind('\n') + 1);
  char line[32];
  std::snprintf(line, sizeof(line), "\"crc32c\": \"%08x\"}", crc32c(std::as_bytes(std::span(text))));
  return text + line;
}

struct Forgery {
  const char *from, *to, *error;
};

TEST_F(Damage, AnIndexMadeToDoHarmIsRefused) {
  const fs::path file = folder_ / "step-1/index.json";
  const std::string whole = bytes_in_file(file);
  const std::string huge = "\"bytes\": 18446744073709551615, \"row\": 0";
  const Forgery forgeries[] = {
      {"\"version\": 1", "\"version\": 99", "has version 99"},
      {"horo checkpoint", "other checkpoint", "no index of a checkpoint of horo"},
      {"part-00000-of-00001.safetensors", "../step-1/part", "other letters"},
      {"part-00000-of-00001.safetensors", ".hidden", "other letters"},
      {"\"offset\": 8, \"bytes\": 840", "\"offset\": 4, \"bytes\": 840", "overlaps"},
      {"\"offset\": 8, \"bytes\": 840", "\"offset\": 9, \"bytes\": 840", "gap"},
      {"\"bytes\": 840, \"row\": 0", huge.c_str(), "18446744073709551615 bytes"},
      {"\"rows\": 30", "\"rows\": 29", "a piece of a with 29 rows"},
      {"\"row\": 0, \"rows\": 30", "\"row\": 1, \"rows\": 29", "gap at row 0 of 30"},
      {"[30, 7]", "[30, 9223372036854775807]", "a is too large"},
      {"[30, 7]", "[-30, 7]", "is not a whole number"},
      {"\"float32\"", "\"float33\"", "of the type \"float33\""},
      {"\"name\": \"c\"", "\"name\": \"a\"", "a is there twice"},
      {"\"part\": 0", "\"part\": 7", "in part 7 of 1"},
      {"\"header_bytes\": 4096", "\"header_bytes\": 4", "a header of 4"},
      {"\"header_bytes\": 4096", "\"header_bytes\": 9223372036854775808", "a header of 9223372036854775808"},
      {"\"blocks_crc32c\": \"", "\"blocks_crc32c\": \"00000000", "has 2 checksums, and 1 blocks"},
      {"\"step\": 1", "\"step\": 1.5", "step is not a whole number"},
      {"\"kind\": \"replicated\"", "\"kind\": \"other\"", "kind is not replicated"},
      {"\"kind\": \"replicated\", \"pieces\"", "\"kind\": \"replicated\", \"alias_of\": \"z\", \"pieces\"",
       "alias of \"z\""},
      {"\"block_bytes\": 4194304", "\"block_bytes\": 1", "is not 4194304"},
  };
  for (const Forgery& forgery : forgeries) {
    write_file(file, signed_index(whole, forgery.from, forgery.to));
    EXPECT_THAT(thrown_by([&] { Checkpoint(folder_ / "step-1"); }),
                AllOf(HasSubstr("step-1/index.json: "), HasSubstr(forgery.error)))
        << forgery.from << " -> " << forgery.to;
  }
}

TEST_F(Damage, ThePartsOfAnotherCheckpointAreRefused) {
  save_alone(folder_ / "step-2", State(flipped_state(), 6), 2);
  fs::copy_file(folder_ / "step-2/index.json", folder_ / "step-1/index.json", fs::copy_options::overwrite_existing);
  State into(flipped_state(), 7);
  EXPECT_THAT(load_error(folder_ / "step-1", into), HasSubstr("block 0 is damaged"));
}

TEST(Headers, ThatAreNoneAreRefused) {
  const auto error_of = [](const std::string& file) {
    return thrown_by([&] {
      const std::uint64_t bytes = header_bytes_in(file.substr(0, 8), file.size());
      entries_in(file.substr(0, bytes), file.size());
    });
  };
  const auto file_of = [](const std::string& json, std::size_t data) {
    std::string length(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> 8 * i & 0xff);
    return length + json + std::string(data, 'x');
  };
  EXPECT_THAT(error_of("short"), HasSubstr("shorter than 8 bytes"));
  EXPECT_THAT(error_of(std::string("\0\0\0\0\0\0\0\x80", 8)), HasSubstr("9223372036854775808 bytes"));
  EXPECT_THAT(error_of(file_of("[1", 0)), HasSubstr("not JSON"));
  EXPECT_THAT(error_of(file_of("[]", 0)), HasSubstr("not a JSON object"));
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(error_of(file_of(good, 8)), "");
  EXPECT_THAT(error_of(file_of(good, 9)), HasSubstr("its tensors have 8 bytes, and its data 9"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string json = good;
    json.replace(json.find(from), from.size(), to);
    return error_of(file_of(json, 8));
  };
  EXPECT_THAT(with("F32", "F33"), HasSubstr("unknown type"));
  EXPECT_THAT(with("[2]", "[3]"), HasSubstr("has other bytes"));
  EXPECT_THAT(with("[2]", "[18446744073709551615]"), HasSubstr("too large"));
  EXPECT_THAT(with("[0,8]", "[1,9]"), HasSubstr("gap"));
  EXPECT_THAT(with("[0,8]", "[8,0]"), HasSubstr("has other bytes"));
  EXPECT_THAT(with("\"shape\":[2],", ""), HasSubstr("has no \"shape\""));
}

}  // namespace
}  // namespace horo::checkpoint
