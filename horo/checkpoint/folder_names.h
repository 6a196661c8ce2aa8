// Names in a folder of checkpoints, and of the files in one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace horo::checkpoint {

inline constexpr const char* kTemporary = ".tmp-";        // a folder that is being written
inline constexpr const char* kReplaced = ".old-";         // a checkpoint whose name a new one is about to have
inline constexpr const char* kRemoved = ".del-";          // a folder that is being removed
inline constexpr const char* kFailure = "failed";         // why rank 0 has given the save up
inline constexpr const char* kPublishing = "rank-00000";  // the new name of the folder is not on the disk yet
inline constexpr const char* kHeld = "rank-lock";         // rank 0 has its lock as long as it writes the folder

// With a random number each: ".old-step-000000001-a1b2c3d4e5f60708".
std::string temporary_name_for(const std::string& final_name);
std::string replaced_name_for(const std::string& final_name);
std::string removed_name_for(const std::string& final_name);
// The final name in one of these; nothing: another name, or another beginning.
std::optional<std::string> final_name_in(const std::string& name, const std::string& beginning);

// The number of "step-000012"; nothing: another name.
std::optional<std::uint64_t> step_in(const std::string& name);

// The file by which a rank tells rank 0 of its parts.
std::string message_file(std::size_t rank);
bool is_message_file(const std::string& name);
bool is_part_file(const std::string& name);
// What a save makes: parts, the index, and messages of ranks.
bool is_own_file(const std::string& name);

}  // namespace horo::checkpoint
