// Where the time of a run went that was carried out with --profile.

function drawProfile() {
  const profile = data.profile;
  if (!profile) return null;
  const steps = profile.steps ? ` Training steps: ${profile.steps}.` : "";
  const node = section(
    "profile",
    "Where the time went",
    `Of ${profile.wall} s, by the last command on this run that had --profile, before it wrote its report.${steps}`,
  );
  plainTable(node, "Where the time went", ["Section", "Seconds", "% of all", "Seconds a round"], profile.rows);
  return null;
}
