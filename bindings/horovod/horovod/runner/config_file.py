"""horovodrun --config-file: a YAML file with the values of flags. Flags on the command line take precedence."""

import difflib

# Keys of each section: the name of the flag's value, and for switches that have another sense, False.
SECTIONS = {
    "params": {
        name: name
        for name in (
            "fusion_threshold_mb cycle_time_ms cache_capacity hierarchical_allreduce hierarchical_allgather "
            "torus_allreduce"
        ).split()
    },
    "autotune": {
        "enabled": "autotune",
        "log_file": "autotune_log_file",
        "warmup_samples": "autotune_warmup_samples",
        "steps_per_sample": "autotune_steps_per_sample",
        "bayes_opt_max_samples": "autotune_bayes_opt_max_samples",
        "gaussian_process_noise": "autotune_gaussian_process_noise",
    },
    "timeline": {"filename": "timeline_filename", "mark_cycles": "timeline_mark_cycles"},
    "stall_check": {
        "enabled": "no_stall_check",
        "warning_time_seconds": "stall_check_warning_time_seconds",
        "shutdown_time_seconds": "stall_check_shutdown_time_seconds",
    },
    "library_options": {
        name: name for name in "mpi_threads_disable num_nccl_streams thread_affinity gloo_timeout_seconds".split()
    },
    "logging": {"level": "log_level", "with_timestamp": "log_with_timestamp"},
}
CONTROLLERS = {"gloo": "use_gloo", "mpi": "use_mpi"}


def load(path):
    """The content of the file. Raises ValueError with the file and the reason."""
    try:
        import yaml
    except ImportError as error:
        raise ValueError(f"--config-file {path}: needs PyYAML: pip install pyyaml") from error
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"--config-file {path}: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError(f"--config-file {path}: expected sections such as params: and logging:")
    return content


def values_of(content, path):
    """({name: value}, [keys that are unknown]) of a file's content."""
    values, unknown = {}, []
    for section, entries in content.items():
        if section == "controller":
            name = CONTROLLERS.get(str(entries).lower())
            if name is None:
                raise ValueError(f"--config-file {path}: controller: {entries}; expected gloo or mpi")
            values[name] = True
        elif section not in SECTIONS:
            unknown.append(_with_nearest(str(section), [*SECTIONS, "controller"]))
        elif not isinstance(entries, (dict, type(None))):
            raise ValueError(f"--config-file {path}: {section}: expected keys below it")
        else:
            _take(section, entries or {}, values, unknown)
    return values, unknown


def _with_nearest(key, known):
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    return f"{key} (did you mean {near[0]}?)" if near else key


def _take(section, entries, values, unknown):
    for key, value in entries.items():
        name = SECTIONS[section].get(key)
        if name is None:
            unknown.append(_with_nearest(f"{section}.{key}", [f"{section}.{known}" for known in SECTIONS[section]]))
        elif value is not None:
            values[name] = not value if name == "no_stall_check" else value
