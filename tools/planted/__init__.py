"""The parts of tools/step_checks: ranks with planted delays, and what horo must say of them."""
