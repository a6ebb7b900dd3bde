"""What commands do with stacks: what a deployment would change, and what is left of one."""
