// Prints for each post, a line of JSON, whether the library of Standard Webhooks verifies it.
const { Webhook } = require("standardwebhooks");

const posts = JSON.parse(require("fs").readFileSync(0, "utf8"));
for (const { secret, headers, body } of posts) {
  try {
    new Webhook(secret).verify(body, headers);
    console.log(true);
  } catch (error) {
    console.log(false);
  }
}
