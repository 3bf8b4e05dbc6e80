// Node's http, for the matrix of programs.
//
// serve HOST PORT   the file `content` as a stream; what is posted comes back
// ask HOST PORT     twenty requests over kept connections, the file and a large body, and what came of them
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');

const [role, host, port] = process.argv.slice(2);

if (role === 'serve') {
  http.createServer((request, response) => {
    if (request.method === 'POST') request.pipe(response);
    else fs.createReadStream('content').pipe(response);
  }).listen(port, host);
  process.on('SIGTERM', () => process.exit(0));
} else {
  ask().catch((error) => console.log(error.code));
}

async function ask() {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
  const bodies = Array.from({ length: 20 }, (_, i) => Buffer.alloc(1000 * i + 1, i));
  const answers = await Promise.all(bodies.map((body) => sum(agent, body)));
  console.log(answers.every((answer, i) => answer === digest(bodies[i])));
  const large = Buffer.alloc(5_000_000, 'large');
  console.log(await sum(agent, large) === digest(large));
  console.log(await sum(agent, null));
  agent.destroy();
}

function digest(bytes) {
  return crypto.createHash('sha256').update(bytes).digest('hex');
}

/// Posts a body, or asks for the file; the digest of the answer.
function sum(agent, body) {
  return new Promise((resolve, reject) => {
    const request = http.request({ host, port, agent, method: body ? 'POST' : 'GET' }, (response) => {
      const hash = crypto.createHash('sha256');
      response.on('data', (part) => hash.update(part));
      response.on('end', () => resolve(hash.digest('hex')));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(body);
  });
}
