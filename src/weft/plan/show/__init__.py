"""Plans and graphs shown to people: texts, tables, diagrams and pictures."""
