"""What README.md and docs/ show: the site builds, links lead somewhere, commands exist."""
