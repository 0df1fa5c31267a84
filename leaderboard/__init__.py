"""Tables and pages made from result rows."""
